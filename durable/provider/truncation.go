package provider

// TruncationMark is the suffix of a text that was truncated to fit its storage.
const TruncationMark = " … (cut)"
