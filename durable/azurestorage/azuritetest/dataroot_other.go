//go:build !linux

package azuritetest

// dataRoot returns "", which selects the default temporary folder.
func dataRoot() string { return "" }
