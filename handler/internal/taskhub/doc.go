// Package taskhub is the task hub as a server sees it: storage that may be out of reach,
// a local file that another process may have open, and requests that must not wait for
// either. A [Hub] waits for the storage and runs the worker; a [Client] bounds requests and
// marks their errors; a [Readiness] says whether the app can serve.
package taskhub
