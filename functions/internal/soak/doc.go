// Package soak tests each store with real processes. Workers are killed and frozen, and requests to the
// storage fail. An oracle compares the hub with all acknowledged requests. `scripts/soak` runs the tests for
// longer.
package soak
