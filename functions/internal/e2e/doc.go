// Package e2e contains the end-to-end tests. They run the sample app and e2eapp as processes, alone and below
// the real Functions host. The hubs are in local files and on Azurite.
package e2e
