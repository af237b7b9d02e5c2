//go:build race

package testshare

const underRace = true
