// Package soak tests each store with real processes: workers are killed and frozen, requests to the storage fail, and an
// oracle compares the hub with all acknowledged requests. `scripts/soak` runs it for longer.
package soak
