package provider

// CutMark is the suffix of a text that was truncated to fit its storage.
const CutMark = " … (cut)"
