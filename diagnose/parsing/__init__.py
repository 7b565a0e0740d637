"""Kit for parser writers: evidence, un-prefixing, re-joining, sections, units, times. Stdlib only, no files, no clock.

Every log parser goes through `unprefix`, so that launcher prefixes are understood in one place. Pasted logs may be
hard-wrapped (`rejoin`, `rejoined`) or spliced (`split_spliced`).
"""

from diagnose.parsing.prefixes import Prefix, split_spliced, unprefix
from diagnose.parsing.terminal import Section, device_from_command, device_from_name, is_gap, sections
from diagnose.parsing.text import MAX_LINE, clean, evidence, problem, unwrap_json
from diagnose.parsing.values import assumed_zone, drop_none, integer, number, parse_ctime, parse_time, zone_named
from diagnose.parsing.wrapping import rejoin, rejoin_text, rejoined, wrap_width

__all__ = [
    "MAX_LINE",
    "Prefix",
    "Section",
    "assumed_zone",
    "clean",
    "device_from_command",
    "device_from_name",
    "drop_none",
    "evidence",
    "integer",
    "is_gap",
    "number",
    "parse_ctime",
    "parse_time",
    "problem",
    "rejoin",
    "rejoin_text",
    "rejoined",
    "sections",
    "split_spliced",
    "unprefix",
    "unwrap_json",
    "wrap_width",
    "zone_named",
]
