"""The problems that Datum knows, by their names."""

from __future__ import annotations

IMAGE_CLF = "image_clf"
IMAGE_DET = "image_det"
IMAGE_SEG = "image_seg"
TEXT_CLF = "text_clf"
