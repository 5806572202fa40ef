"""Commands and replies of the Redis protocol, as far as the drivers' own clients need them."""


def word(*parts: bytes) -> bytes:
    """A command, as it is sent."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def is_whole(heard: bytes) -> bool:
    """Whether a reply of one line or of one value has come to its end."""
    head, line, rest = heard.partition(b"\r\n")
    if not line or not head.startswith(b"$") or head == b"$-1":
        return bool(line)
    return len(rest) >= int(head[1:]) + 2


def moved_port(heard: bytes) -> int:
    """Where -MOVED says that a key is."""
    return int(heard.split()[2].rsplit(b":", 1)[1])
