"""Texts that would do harm if a page did not escape them, and records that hold them."""

HOSTILE_TEXTS = [
    "<script>window.owned = 1</script>",
    "\"><img src=x onerror='window.owned = 1'>",
    "</style></script><svg onload=window.owned=1>",
    "javascript:window.owned=1",
    "{{ 7 * 7 }}{% for x in y %}",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066\u200f",
    "nul\x00nul",
    "Z" + "\u0351" * 5000,
    "w" * 1_000_000,
]


def poison_record(record, text):
    """Return the record with `text` in every field that can hold a string."""

    def poison(value):
        if isinstance(value, str):
            return text
        if isinstance(value, tuple) and value and isinstance(value[0], str):
            return (text,)
        return value

    def poison_model(model, unchanged=()):
        fields = {
            n: poison(getattr(model, n)) for n in type(model).model_fields if n not in unchanged
        }
        return model.model_copy(update=fields)

    digest_only = ("digest",)
    return record.model_copy(
        update={
            "request": poison_model(record.request, ("scaling", "page_cache")).model_copy(
                update={"strategy_options": ((text, text),), "ranks": 2}
            ),
            "workload": poison_model(record.workload, digest_only),
            "observed": poison_model(record.observed),
            "machine": poison_model(record.machine),
            "limit": record.limit and poison_model(record.limit),
            "software": poison_model(record.software),
            "created": text,
            "certificate": text,
            "cell": text,
            "id": f"sha256:{text}",
        }
    )
