package main

import "github.com/durablefunctions-go/durablefunctions/durable"

// functions lists the app's functions with their names. Other programs and the histories of
// running instances refer to these names. Keep a name when you rename its Go function.
var functions = []*durable.Registration{
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

	durable.Orchestrator("E6_Transfer", Transfer),
}
