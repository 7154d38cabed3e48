from course_lib.plots.diagrams import divergence_sources, request_path
