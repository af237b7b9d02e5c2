// Package hubfile stores a hub's records in files: a bbolt database, which is the base of a
// [logstore.Store], and two journal files beside it, which are its log. A third file identifies the
// process that has the hub open.
//
// The package creates, opens, recovers and verifies the files. It knows the names of the tables but
// not the format of their records.
package hubfile
