// Chips that show and hide claims, by verdict and by chapter. Their words come from the page, so any language works.
document.addEventListener("DOMContentLoaded", () => {
  const claims = [...document.querySelectorAll(".claim")];
  if (!claims.length) return;
  const sections = [...document.querySelectorAll("section.claims")];
  const hidden = new Set();
  const bar = document.createElement("div");
  bar.className = "claim-filter";

  const count = document.createElement("output");
  const update = () => {
    for (const claim of claims) {
      const verdicts = [...claim.classList].filter((c) => c.startsWith("verdict-"));
      claim.hidden = hidden.has(claim.closest("section").id) || verdicts.every((v) => hidden.has(v));
    }
    for (const s of sections) s.hidden = ![...s.querySelectorAll(".claim")].some((c) => !c.hidden);
    count.textContent = `${claims.filter((c) => !c.hidden).length} / ${claims.length}`;
  };
  const row = (chips) => {
    const line = document.createElement("div");
    for (const [key, label, style] of chips) {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.className = `chip ${style}`;
      chip.textContent = label;
      chip.setAttribute("aria-pressed", "true");
      chip.addEventListener("click", () => {
        hidden.has(key) ? hidden.delete(key) : hidden.add(key);
        chip.setAttribute("aria-pressed", String(!hidden.has(key)));
        update();
      });
      line.append(chip);
    }
    bar.append(line);
  };

  const order = ["supported", "refuted", "conditional", "not-observed-here", "untested"];
  const verdicts = new Map(order.map((v) => [`verdict-${v}`, ""]));
  for (const badge of document.querySelectorAll(".claim .verdict")) {
    const key = [...badge.classList].find((c) => c.startsWith("verdict-"));
    verdicts.set(key, badge.textContent);
  }
  row([...verdicts].filter(([, label]) => label).map(([key, label]) => [key, label, key]));
  row(sections.map((s) => [s.id, s.querySelector("h2").firstChild.textContent, ""]));
  bar.append(count);
  sections[0].before(bar);
  update();
});
