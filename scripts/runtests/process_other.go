//go:build !unix

package main

import "os/exec"

// inOwnGroup does nothing, because this system has no process groups.
func inOwnGroup(*exec.Cmd) {}

func quit(cmd *exec.Cmd) { kill(cmd) }

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
