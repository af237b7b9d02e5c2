package provider

// CutMark ends a text of which the rest was left out, because there is no room
// for it where it is stored.
const CutMark = " … (cut)"
