//go:build !race

package testshare

const underRace = false
