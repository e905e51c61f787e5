"""The published numbers of the REM paper, as printed, table by table.

Each table is read as `table[section, row] = cells`, in the paper's order.
Accuracies and sparsities are in %, entropies in bits. What is odd about them is
said in the notes of the tables in `experiments/rows/`.

Source: "Capsule Networks Do Not Need to Model Everything", tables 1 to 12.
"""

import re

Table = dict[tuple[str, str], tuple[str | None, ...]]


def _read(text: str) -> Table:
    """Reads lines `row  cell cell ...` under lines that name a section.

    Two spaces end the name of a row; `-` is a cell that the paper leaves empty.
    """
    table: Table = {}
    section = ""
    for line in text.strip().splitlines():
        row, *rest = re.split(r"\s{2,}", line.strip(), maxsplit=1)
        if not rest:
            section = row
            continue
        cells = rest[0].split()
        table[section, row] = tuple(
            None if cell == "-" else cell.replace("±", " ± ") for cell in cells
        )
    return table


# Accuracy; accuracy and entropy of +Q; accuracy, entropy, sparsity of +REM.
TABLE_1 = _read("""
F-MNIST
DR-CapsNet       92.76±0.21 92.46±0.23 8.64±1.15 92.62±0.14 4.80±1.70 80.71
γ-CapsNet        92.59±1.14 92.43±1.10 3.98±0.76 93.01±1.06 1.45±0.68 87.07
DeepCaps         92.36±0.27 92.33±0.24 7.15±1.33 94.61±0.06 6.08±1.29 83.29
Eff-CapsNet      93.31±0.31 93.22±0.24 3.88±1.10 92.98±0.42 1.10±0.48 63.29
SVHN
DR-CapsNet       93.30±0.41 92.20±0.20 7.13±1.15 91.71±0.53 5.23±0.71 74.40
γ-CapsNet        89.02±0.12 87.42±1.22 7.15±0.86 88.36±0.21 5.65±1.22 73.89
DeepCaps         93.32±0.36 93.20±0.36 11.06±0.58 93.06±0.24 3.97±1.50 80.50
Eff-CapsNet      93.64±0.11 93.62±0.03 0.53±0.59 93.12±0.02 0.24±0.41 47.80
CIFAR-10
DR-CapsNet       79.93±0.28 78.42±2.06 6.26±0.61 79.25±0.59 4.15±0.62 81.17
γ-CapsNet        74.02±0.31 73.08±0.48 3.67±0.70 74.89±0.23 3.22±0.66 74.89
DeepCaps         90.80±0.13 90.47±0.10 8.99±0.52 90.35±0.13 7.07±1.01 46.83
Eff-CapsNet      81.53±0.61 81.51±0.52 0.25±0.35 81.49±0.47 0.01±0.02 53.79
Dogs vs. Cats
Eff-ConvCapsNet  97.74±0.37 99.20±0.25 4.05±0.28 99.10±0.56 2.03±0.73 71.92
Imagenette
Eff-ConvCapsNet  83.11±0.18 82.98±0.66 7.63±0.51 83.02±0.78 5.85±0.38 63.52
""")

# Accuracy on expanded MNIST; accuracy, entropy, sparsity on affNIST.
TABLE_2 = _read("""
under-trained
+Q    99.22 77.93±0.55 8.64±1.15 0
+REM  99.22 81.81±0.81 8.45±1.10 71.26
well trained
+Q    99.36±0.05 83.14±0.24 8.45±0.99 0
+REM  99.48±0.02 85.23±0.11 5.93±1.39 87.32
""")

# Familiar accuracy and entropy; novel accuracy and entropy; sparsity.
TABLE_3 = _read("""
elevation
Eff-CapsNet+Q    97.81±0.45 1.10±0.42 85.03±1.01 1.33±0.53 0
Eff-CapsNet+REM  98.08±0.25 0.26±0.14 86.50±0.31 0.25±0.11 75.09
azimuth
Eff-CapsNet+Q    97.07±0.52 1.69±0.28 87.95±1.67 1.71±0.34 0
Eff-CapsNet+REM  97.31±0.31 0.38±0.15 88.48±1.38 0.33±0.12 68.85
""")

# As table 3.
TABLE_5 = _read("""
elevation
DR-CapsNet+Q    90.51±0.29 6.25±1.15 77.40±0.64 5.01±1.45 0
DR-CapsNet+REM  90.38±0.53 3.35±1.18 76.98±0.45 2.47±0.96 50.13
γ-CapsNet+Q     89.62±0.51 1.78±0.82 75.54±0.52 2.72±1.08 0
γ-CapsNet+REM   89.34±1.53 1.46±0.75 74.40±0.62 2.05±0.80 47.50
DeepCaps+Q      95.01±0.58 7.32±1.18 83.18±1.61 7.28±1.66 0
DeepCaps+REM    94.62±0.52 6.75±1.41 82.49±1.53 6.12±1.91 34.45
azimuth
DR-CapsNet+Q    87.44±0.51 5.42±1.34 72.29±0.57 5.02±1.07 0
DR-CapsNet+REM  87.35±0.58 3.38±1.35 71.89±0.65 2.75±1.44 58.61
γ-CapsNet+Q     85.98±0.43 1.87±0.58 71.33±1.22 2.55±0.89 0
γ-CapsNet+REM   85.26±1.24 1.52±0.42 71.12±0.025 2.17±1.61 49.61
DeepCaps+Q      90.16±0.27 6.53±1.77 79.36±0.76 5.14±1.45 0
DeepCaps+REM    90.13±0.13 5.55±1.49 78.66±1.21 3.92±1.36 36.06
""")

# Without quantisation: familiar accuracy, novel accuracy, sparsity.
TABLE_6 = _read("""
elevation
DR-CapsNet          90.62±0.21 77.51±0.43 0
DR-CapsNet pruned   90.51±0.45 77.03±0.38 50.13
γ-CapsNet           90.15±0.39 75.89±0.53 0
γ-CapsNet pruned    89.92±0.91 74.96±0.71 47.50
DeepCaps            95.32±0.48 83.13±0.91 0
DeepCaps pruned     94.48±0.31 82.42±1.53 34.45
Eff-CapsNet         97.83±0.41 85.04±1.06 0
Eff-CapsNet pruned  98.10±0.33 86.50±0.35 75.09
azimuth
DR-CapsNet          87.90±0.50 72.37±0.43 0
DR-CapsNet pruned   86.81±0.61 71.99±0.66 58.61
γ-CapsNet           86.11±0.63 72.55±0.83 0
γ-CapsNet pruned    85.35±0.61 71.35±1.31 49.61
DeepCaps            91.11±0.27 79.53±0.78 0
DeepCaps pruned     90.15±0.91 78.83±1.12 36.06
Eff-CapsNet         97.07±0.52 87.98±1.64 0
Eff-CapsNet pruned  97.29±0.34 88.54±1.35 68.85
""")

# Trained with the decoder: MNIST, F-MNIST, CIFAR-10.
TABLES_7_AND_8 = _read("""
accuracy
+Q    99.58±0.03 92.57±0.39 72.40±0.54
+REM  99.63±0.02 92.76±0.38 76.00±0.63
entropy
+Q    9.88±0.06 8.49±1.50 4.55±1.13
+REM  9.40±0.55 6.15±2.32 3.85±0.54
""")

# MNIST: accuracy, entropy, sparsity, parameters.
TABLE_9 = _read("""
DR-CapsNet
vanilla  99.57±0.02 - - 6.8M
+Q       99.56±0.03 9.53±0.54 - 6.8M
+REM     99.56±0.02 4.16±1.59 85.53 0.9M
γ-CapsNet
vanilla  99.53±0.15 - - 7.7M
+Q       99.50±0.07 1.87±1.38 - 7.7M
+REM     99.50±0.05 1.34±1.09 89.71 0.8M
DeepCaps
vanilla  99.58±0.32 - - 8.4M
+Q       99.51±0.24 5.26±2.00 - 8.4M
+REM     99.61±0.23 3.10±1.07 71.73 2.4M
Eff-CapsNet
vanilla  99.57±0.48 - - 161k
+Q       99.55±0.31 4.38±1.59 - 161k
+REM     99.58±0.64 2.60±1.72 73.15 43k
""")

# Tiny ImageNet, DR-CapsNet: accuracy, entropy, sparsity.
TABLE_10 = _read("""
DR-CapsNet
vanilla  60.85±1.91 - 0
+Q       58.50±1.46 5.18±0.67 0
+REM     58.34±1.61 3.15±0.81 44.27
""")

# DR-CapsNet, number of keys of the classes 0 to 9.
TABLE_11 = _read("""
F-MNIST
+Q    610 936 332 600 346 828 297 915 812 978
+REM  58 140 35 80 30 35 23 31 217 615
affNIST
+Q    9640 5490 14055 4446 9059 7732 11957 3109 15521 3703
+REM  248 66 438 97 161 425 1244 164 396 67
CIFAR-10
+Q    345 407 375 200 291 235 282 381 305 147
+REM  64 125 115 70 39 76 58 71 37 52
Tiny ImageNet
+Q    65 57 50 12 39 51 90 48 129 35
+REM  28 22 9 11 15 7 14 21 30 12
SVHN
+Q    585 1750 1985 1054 890 1116 780 676 434 681
+REM  74 85 302 266 60 129 70 31 139 110
""")

# CIFAR-10, DR-CapsNet: accuracy, entropy, sparsity. As printed, with the names
# of the strategies the wrong way round, see `experiments/rows/table_12.py`.
TABLE_12 = _read("""
as printed
iterative    78.95±0.08 6.87±1.08 80.00
single-shot  79.25±0.59 4.15±0.62 81.17
""")
