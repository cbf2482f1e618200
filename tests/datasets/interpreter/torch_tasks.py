"""What the tests ask of PyTorch's DataLoader.

PyTorch has no reader of files. Folders are read with Pillow, and an LMDB by our reader; the
adapter's own reader is tested in tests/adapters/test_readers.py.
"""

import numpy as np
import torch
from PIL import Image
from streams import batch_size, compare_sets, read_with_our_readers

from xfbench.worker import pictures

__all__ = ["compare_photographs", "read_with_our_readers"]


class Files(torch.utils.data.Dataset):
    """Files by class folder, as torchvision's ImageFolder finds them."""

    def __init__(self, root):
        self.root = root
        names = sorted(path.name for path in root.iterdir())
        self.files = [
            (path, label)
            for label, name in enumerate(names)
            for path in sorted((root / name).iterdir())
        ]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        image = np.array(Image.open(path).convert("RGB")).transpose(2, 0, 1)
        return path.relative_to(self.root).as_posix(), torch.from_numpy(image), label


class Records(torch.utils.data.Dataset):
    """Samples of our reader."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        return sample.key, torch.from_numpy(pictures.decode_pixels(sample, 3)), sample.label


def compare_photographs(scratch, *folders):
    return compare_sets(read_photographs, folders)


def read_photographs(folder, split, opened):
    is_folder = opened.manifest["format"] == "folder"
    data = Files(folder / split) if is_folder else Records(opened.splits[split])
    loader = torch.utils.data.DataLoader(data, batch_size=batch_size(split, opened), num_workers=2)
    samples = {
        key: (image.numpy().copy(), label)
        for batch in loader
        for key, image, label in zip(*batch, strict=True)
    }
    yield "DataLoader", (samples[key] for key in opened.listed[split].keys)
