"""The problems that Datum knows, by their names."""

from __future__ import annotations

IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF = "image_clf", "image_det", "image_seg", "text_clf"
