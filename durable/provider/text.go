package provider

// CutMark is the end of a text that was truncated to fit where it is stored.
const CutMark = " … (cut)"
