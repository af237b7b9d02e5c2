// Package hubcli is the command line of a task hub: the verbs that start, show
// and control instances, and delete and copy a hub.
//
// It speaks the management API to whatever [Program.Open] gives it: that of a
// running app, or one that is made in this very process for a hub that nobody
// serves. So both answer alike.
package hubcli
