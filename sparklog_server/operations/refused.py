"""The refusal of a value that a person gave."""


class OperationRefused(ValueError):
    """The reason in words; `field` names the value that it is about, in lower case, and is empty for the
    whole request.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field
