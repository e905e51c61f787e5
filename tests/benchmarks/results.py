"""Results of benchmarks that were not run, and what their page shows."""

from benchmarks.formulations import Size

MACHINE = {
    "date": "2026-01-02",
    "commit": "abc",
    "cpu": "a CPU",
    "vector_units": ["avx2"],
    "cores": 2,
    "versions": {"python": "3.11.1", "tensorflow": "2.21.0"},
}
FORMULATIONS = {
    "size": Size()._asdict(),
    "rows": [
        {
            "gradient": gradient,
            "name": name,
            "forward": {"ms": 10.0 * slow},
            "step": {"ms": 20.0 * slow},
            "peak_mb": peak_mb,
            "process_mb": peak_mb and 2 * peak_mb,
        }
        for gradient, name, slow, peak_mb in (
            ("last", "tiled", 9, None),
            ("last", "einsum", 4.5, 1000.0),
            ("last", "tfcaps", 1, 250.0),
            ("full", "einsum", 3, None),
            ("full", "tfcaps", 1, None),
        )
    ],
}
REM = {
    "evaluation": {
        "images": 2000,
        "batch": 256,
        "evaluate": {"ms": 1100.0},
        "predict": {"ms": 1000.0},
    },
    "dictionary": {
        "rows": 20000,
        "codes": 1152,
        "dictionary": {"ms": 10.0},
        "strings": {"ms": 250.0},
    },
}


def part(result, quick=False):
    settings = {"rounds": 15, "quick": quick, "large": False}
    return {"machine": MACHINE, "settings": settings, "result": result}


def cells(page, start):
    """Returns the cells of the table rows that begin so."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith(f"| {start}")
    ]
