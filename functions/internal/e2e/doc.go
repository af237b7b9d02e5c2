// Package e2e has the end-to-end tests: they build the sample app and e2eapp, and run them as processes, on their own and
// below the real Functions host, on local files and on Azurite.
package e2e
