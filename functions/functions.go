package main

import "github.com/durablefunctions-go/durablefunctions/durable"

// functions are what the app can run. The names are what other programs know
// and what running instances have in their histories, so they stay as they are,
// whatever the Go functions are called.
var functions = []*durable.Function{
	durable.Orchestrator("E1_HelloSequence", HelloSequence),
	durable.Activity("E1_SayHello", SayHello),

	durable.Orchestrator("E2_BackupSiteContent", BackupSiteContent),
	durable.Activity("E2_GetFileList", GetFileList),
	durable.Activity("E2_CopyFile", CopyFile),

	durable.Orchestrator("E3_Monitor", Monitor),
	durable.Activity("E3_IsThere", IsThere),

	durable.Orchestrator("E4_SmsPhoneVerification", SmsPhoneVerification),
	durable.Activity("E4_SendSmsChallenge", SendSmsChallenge),

	durable.Entity("Counter", durable.Op("add", (*Counter).Add), durable.Op("get", (*Counter).Get), durable.Op("reset", (*Counter).Reset)),
	durable.Orchestrator("E5_MoveCount", MoveCount),
}
