package store

// Health is told whether a part of the storage account answers.
type Health interface {
	OK(part string)
	Failed(part string, err error)
}
