//go:build !linux

package azuritetest

// dataRoot says that data folders go to the usual place for temporary files.
func dataRoot() string { return "" }
