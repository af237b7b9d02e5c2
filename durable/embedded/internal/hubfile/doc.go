// Package hubfile stores a hub's records in files. A bbolt database is the base of a
// [logstore.Store], and two journal files beside it are its log. Another file identifies the process
// that has the hub open.
//
// The package creates, opens, recovers and verifies the files. It knows the names of the tables but
// not the format of their records.
package hubfile
