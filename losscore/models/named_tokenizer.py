"""A tokenizer named beside its model, such as the original of the one that is rebuilt from a GGUF."""

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from losscore.errors import ModelError
from losscore.models.hub import cached, check_whole
from losscore.models.progress import ignore
from losscore.models.silence import silence
from losscore.models.source import path_of
from losscore.models.weights import check_tokenizer


def named_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer in the folder `name`, or of the Hugging Face id `name` in the local cache. Opens no connection.

    ModelError where there is none, or it cannot be read.
    """
    path = path_of(name)
    if path.is_file():
        raise ModelError(f"The tokenizer “{path.name}” is a file: name the folder of the original model.")
    folder = path
    if not path.is_dir():
        snapshot = cached(name)
        if snapshot is None:
            raise ModelError(f"There is no tokenizer “{name}” on this machine: name a folder that holds one.")
        check_whole(snapshot, name)
        folder = snapshot
    check_tokenizer(folder, name)
    try:
        with silence("reading the tokenizer", ignore):
            read: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    # Whatever a tokenizer's files can hold, and each tokenizer class complains of in its own way.
    except Exception as error:
        raise ModelError(f"The tokenizer “{name}” cannot be read: get its files again.") from error
    return read


def origin_of(name: str) -> str:
    """What finds the tokenizer `name` again from any working directory: a folder's whole path, or the id."""
    path = path_of(name)
    return str(path.resolve()) if path.is_dir() else name


def check_fits(tokenizer: PreTrainedTokenizerBase, name: str, rows: int, model: str) -> None:
    """ModelError where `tokenizer` has ids beyond the `rows` of the model's embedding."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= rows:
        raise ModelError(
            f"The tokenizer “{name}” has ids up to {largest} and “{model}” knows only {rows}: "
            "name the tokenizer made for this model."
        )
