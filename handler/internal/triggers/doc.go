// Package triggers implements the contract between the Functions host and functions with triggers:
// function.json, the values and outputs of an invocation, and its time limit. Package handler provides
// the API for apps.
package triggers
