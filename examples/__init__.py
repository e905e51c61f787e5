"""Scripts on public names of tfcaps; none is in the wheel."""
