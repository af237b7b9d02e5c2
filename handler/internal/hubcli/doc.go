// Package hubcli is the command line of a task hub: the verbs that start, show
// and control instances, and delete and copy a hub.
//
// It uses the management API that [Program.Open] returns: that of a running app or, if no
// app serves the hub, one in this process. So both answer alike.
package hubcli
