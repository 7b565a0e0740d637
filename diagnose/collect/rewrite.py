"""stub"""


def redact_folder(w):
    return {}


def write_map(p, n):
    pass
