"""What the tests ask of Caffe's Data layer."""

from pathlib import Path

import caffe
from streams import batch_size, compare_sets, read_with_our_readers, to_bytes

__all__ = ["compare_photographs", "read_lmdb", "read_with_our_readers"]

LAYER = """layer { name: "data" type: "Data" top: "data" top: "label"
  transform_param { force_color: %s }
  data_param { source: "%s" backend: LMDB batch_size: %d } }"""
# Gray JPEG files have one channel unless color is asked for.
COLORS = {"plain": "false", "force_color": "true"}


def load_net(scratch, database, count, color="false"):
    description = Path(scratch) / "net.prototxt"
    description.write_text(LAYER % (color, database, count))
    return caffe.Net(str(description), caffe.TRAIN)


def read_lmdb(scratch, folder, count):
    net = load_net(scratch, f"{folder}/train.lmdb", count)
    net.forward()
    # The memory of blobs goes with the net.
    images, labels = (net.blobs[name].data.copy() for name in ("data", "label"))
    return {"images": images[:, ::-1], "labels": labels}


def compare_photographs(scratch, *folders):
    def read(folder, split, opened):
        group = folder.name.split("-")[0]
        for reader in {"kept": ["force_color"], "scaled": ["plain"]}.get(group, COLORS):
            batch = batch_size(split, opened)
            net = load_net(scratch, folder / f"{split}.lmdb", batch, COLORS[reader])
            yield reader, read_net(net, len(opened.splits[split]) // batch)

    return compare_sets(read, folders)


def read_net(net, batches):
    for _ in range(batches):
        net.forward()
        images, labels = net.blobs["data"].data, net.blobs["label"].data
        for index, image in enumerate(to_bytes(images)):
            yield image[::-1], labels[index]
