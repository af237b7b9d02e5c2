// Package triggers is the contract between the Functions host and functions with triggers:
// function.json, the values of an invocation, its outputs, and its time limit. Package
// handler has the API for apps.
package triggers
