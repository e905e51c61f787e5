"""Letters of lines, from 300 images."""
