// Package hubcli implements the command line of a task hub, `app hub VERB`. Its verbs start, show and
// control instances, and check, copy, back up and delete the hub.
//
// Most verbs send requests to a management API that [Program.Open] returns: the API of the running app
// that holds the hub, or an API in this process. Verbs that work on a whole hub call a function of
// [Program], such as [Program.Copy].
package hubcli
