"""The fixed words of the reports, in English and Chinese. Findings arrive in the language chosen."""

from __future__ import annotations

from collections.abc import Mapping

GLYPHS: Mapping[str, str] = {"critical": "✖", "major": "●", "minor": "▲", "info": "·"}

_EN: dict[str, str] = {
    "critical": "CRITICAL", "major": "MAJOR", "minor": "MINOR", "info": "INFO",
    "high": "high confidence", "medium": "medium confidence", "low": "low confidence",
    "read-only": "read-only", "changes-state": "changes state", "maintenance": "maintenance",
    "evidence": "Evidence", "why": "Why", "fix": "Fix", "next": "next",
    "on": "on", "subjects": "about", "verify": "verify", "rollback": "undo", "look_alikes": "Could be mistaken for",
    "open": "Would settle it", "explains": "Explains", "references": "References", "not_judged": "Not judged",
    "problems": "Problems", "unread": "Not read", "sources": "Sources", "context": "Context",
    "acknowledged": "Acknowledged", "job": "job", "tool": "Made by", "same": "Same finding elsewhere",
    "progress": "Who stands where",
    "cannot_tell": "cannot tell", "no_cause": "what causes it is not in the evidence",
    "nothing_decides": "nothing in the evidence decides it",
    "no_fault": "no fault found in {sources}", "checks_open": "{checks} not judged",
    "nothing_read": "nothing readable in {sources}, so nothing was judged",
    "nothing_seen": "nothing at or above minor in: {kinds}",
    "no_command": "no safe command is known; the steps are below",
    "nothing_to_do": "nothing to do", "no_evidence": "the finding carries no line of evidence",
    "folded": "{n} folded beneath it", "more_findings": "further findings: {counts}",
    "read_of": "{read} of {all} sources read", "stalled_since": "stalled since {at}",
    "more": "… and {n} more", "all_in": "all of it: --format json",
    "all_open": "all of them: diagnose analyze -v, or --format json",
    "lines": "lines", "unrecognised": "no known format", "empty": "empty",
    "error": "could not be read", "partial": "read in part", "parsed": "read", "thresholds": "Thresholds",
    "page_evidence": "Evidence it needs", "page_unless": "Stays quiet when", "page_supports": "Surer when",
    "page_cause": "Cause", "page_steps": "Steps", "page_status": "Status",
    "page_explained": "Findings folded beneath it", "page_examples": "Examples", "source": "source",
    "page_scope_job": "anywhere in the job", "page_scope_host": "on the same host",
    "the_host": "the host", "host": "Host", "kinds": "Kinds", "status": "Status", "path": "File",
}  # fmt: skip

_ZH: dict[str, str] = {
    "critical": "严重", "major": "重要", "minor": "次要", "info": "提示",
    "high": "可信度高", "medium": "可信度中", "low": "可信度低",
    "read-only": "只读", "changes-state": "会改变状态", "maintenance": "需要维护窗口",
    "evidence": "证据", "why": "原因", "fix": "处理步骤", "next": "下一步",
    "on": "在", "subjects": "涉及", "verify": "验证", "rollback": "回退", "look_alikes": "容易混淆的情况",
    "open": "可进一步确认", "explains": "由此引起", "references": "参考资料", "not_judged": "未能判断",
    "problems": "处理中的问题", "unread": "未读取", "sources": "来源", "context": "背景信息",
    "acknowledged": "已知并接受", "job": "作业", "tool": "生成工具", "same": "其他位置的相同发现",
    "progress": "各 rank 的位置",
    "cannot_tell": "无法判断", "no_cause": "现有证据中没有原因",
    "nothing_decides": "现有证据不足以判断",
    "no_fault": "在 {sources} 中未发现故障", "checks_open": "{checks} 未能判断",
    "nothing_read": "{sources} 中没有可读的内容，因此未作任何判断",
    "nothing_seen": "以下来源中没有次要及以上的发现：{kinds}", "no_command": "没有已知的安全命令；步骤见下文",
    "nothing_to_do": "无需处理", "no_evidence": "该发现没有对应的证据行",
    "folded": "其下折叠 {n} 项", "more_findings": "其他发现：{counts}",
    "read_of": "已读取 {read}/{all} 个来源", "stalled_since": "自 {at} 起停滞",
    "more": "…… 另有 {n} 项", "all_in": "完整内容：--format json",
    "all_open": "全部：diagnose analyze -v，或 --format json",
    "lines": "行", "unrecognised": "格式未知", "empty": "空文件",
    "error": "无法读取", "partial": "部分读取", "parsed": "已读取", "thresholds": "阈值",
    "page_evidence": "所需证据", "page_unless": "以下情况不报告", "page_supports": "以下情况更可信",
    "page_cause": "原因", "page_steps": "步骤", "page_status": "状态",
    "page_explained": "折叠于其下的发现", "page_examples": "示例", "source": "出处",
    "page_scope_job": "作业中任何位置", "page_scope_host": "同一主机上",
    "the_host": "该主机", "host": "主机", "kinds": "类型", "status": "状态", "path": "文件",
}  # fmt: skip

LANGUAGES: Mapping[str, Mapping[str, str]] = {"en": _EN, "zh": _ZH}

_COUNTED: Mapping[str, tuple[str, str, str]] = {
    "source": ("source", "sources", "个来源"),
    "check": ("check", "checks", "项检查"),
    "problem": ("problem", "problems", "个问题"),
    "node": ("node", "nodes", "个节点"),
    "rank": ("rank", "ranks", "个 rank"),
    "gpu": ("GPU", "GPUs", "个 GPU"),
    "consequence": ("consequence", "consequences", "项后果"),
}


class Words:
    """The fixed words of one language; an unknown language is a KeyError at once."""

    def __init__(self, lang: str = "en") -> None:
        self.lang = lang
        self._table = LANGUAGES[lang]

    def __getitem__(self, key: str) -> str:
        return self._table[key]

    def say(self, key: str, **values: object) -> str:
        """The sentence with its blanks filled."""
        return self._table[key].format(**values)

    def count(self, n: int, what: str) -> str:
        """`1 source`, `3 sources`, `3 个来源`."""
        one, many, zh = _COUNTED[what]
        if self.lang == "zh":
            return f"{n} {zh}"
        return f"{n} {one if n == 1 else many}"

    def severity(self, severity: str) -> str:
        """Glyph and word: severity is never colour alone."""
        return f"{GLYPHS[severity]} {self[severity]}"

    def plural(self, kind: str) -> str:
        """`nics`, `addresses`, `switches`: a kind of subject, several of it."""
        if self.lang == "zh":
            return kind
        return kind + ("es" if kind.endswith(("s", "x", "ch", "sh")) else "s")

    def on(self, what: str, host: str) -> str:
        """`rank 3 on node-a`."""
        return f"{host} 上的 {what}" if self.lang == "zh" else f"{what} on {host}"

    def colon(self) -> str:
        """What stands between a label and its text."""
        return "：" if self.lang == "zh" else ": "
