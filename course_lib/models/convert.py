"""Convert a GGUF file to safetensors: `python -m course_lib.models.convert FILE.gguf FOLDER`."""

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise to float32, round once to bfloat16, save with tokenizer and chat template.

    transformers refuses to save what it loaded from GGUF; the weights are plain tensors by then, so the mark that
    says otherwise is taken off.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).to(torch.bfloat16)
    model.hf_quantizer = None
    model.is_quantized = False
    del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
