"""A machine that there is not, and what a page shows."""

MACHINE = {
    "date": "2026-01-02",
    "commit": "abc",
    "cpu": "a CPU",
    "vector_units": ["avx2"],
    "cores": 2,
    "versions": {"python": "3.11.1", "tensorflow": "2.21.0"},
}


def cells(page, start):
    """Returns the cells of the table rows that begin so."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith(f"| {start}")
    ]
