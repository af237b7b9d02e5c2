//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inOwnGroup makes the process the leader of a new group, which includes its children.
func inOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// quit makes a Go program print its goroutines and exit.
func quit(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGQUIT) }

// kill ends every process of the group. It may be called after the leader has ended.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
