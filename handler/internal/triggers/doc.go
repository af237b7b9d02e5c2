// Package triggers has what the Functions host and an app say to each other about
// functions with triggers: their function.json, the values of an invocation, its outputs,
// and the time that it may take. Package handler has the API for apps.
package triggers
