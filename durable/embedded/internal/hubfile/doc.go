// Package hubfile keeps a hub's records in files: a bbolt database, which is the
// base of a [logstore.Store], and two journal files beside it, which are its log.
// A third file says which process has the hub open.
//
// The package opens, creates, recovers and checks the files. It knows the names of
// tables and nothing of what is in them.
package hubfile
