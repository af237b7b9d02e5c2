// A function app on an Elastic Premium plan (Linux) that runs a package, with its storage account, Application
// Insights and alerts. There is no secret: the app opens the storage with its own identity. `bin/app deploy` uses
// this file.
//
// Tests check its syntax and the queries of its alerts. It has not been deployed to a real subscription.

@description('Name of the function app; its host name is NAME.azurewebsites.net.')
param name string

@description('Region.')
param location string = resourceGroup().location

@description('Name of the storage account: 3 to 24 letters and digits.')
@minLength(3)
@maxLength(24)
param storageName string = take('st${uniqueString(resourceGroup().id, name)}', 24)

@description('Where the task hub is: AzureStorage has queues and tables in the format of Durable Functions for .NET, partitionLog has append blobs.')
@allowed(['AzureStorage', 'partitionLog'])
param storageType string = 'AzureStorage'

@description('Address that gets mail when an alert fires. Empty: alerts are visible in the portal only.')
param email string = ''

@description('Size of an instance. The engine needs little; choose by what activities need.')
@allowed(['EP1', 'EP2', 'EP3'])
param size string = 'EP1'

@description('Instances that always run. The engine polls its storage from within the app, so it needs at least one.')
@minValue(1)
@maxValue(20)
param alwaysReady int = 1

@description('Maximum number of instances.')
@minValue(1)
@maxValue(100)
param maxInstances int = 10

@description('Name of the package in the container "packages". Empty in the first deployment.')
param package string = ''

// One data role for each service: blobs (leases, large payloads, partition logs), queues (messages) and tables
// (histories, instances). The Functions host keeps its leases and keys in blobs as well.
var roles = {
  blobs: 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b' // Storage Blob Data Owner
  queues: '974c5e8b-45b9-4653-ba55-5f855dd0fb88' // Storage Queue Data Contributor
  tables: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3' // Storage Table Data Contributor
}

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: storageName
  location: location
  kind: 'StorageV2' // a premium account has no queues and tables
  sku: { name: 'Standard_LRS' }
  properties: {
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false // identities only
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: storage
  name: 'default'
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'packages'
}

resource plan 'Microsoft.Web/serverfarms@2023-12-01' = {
  name: '${name}-plan'
  location: location
  kind: 'elastic'
  sku: {
    name: size
    tier: 'ElasticPremium'
    capacity: alwaysReady
  }
  properties: {
    reserved: true // Linux
    maximumElasticWorkerCount: maxInstances
  }
}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-identity'
  location: location
}

resource assignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in items(roles): {
  name: guid(storage.id, identity.id, role.value)
  scope: storage
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal' // no wait for the directory
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
  }
}]

// The app runs from a package in a blob. A file share would need the account's key.
var fromPackage = empty(package) ? [] : [
  { name: 'WEBSITE_RUN_FROM_PACKAGE', value: '${storage.properties.primaryEndpoints.blob}packages/${package}' }
  { name: 'WEBSITE_RUN_FROM_PACKAGE_BLOB_MI_RESOURCE_ID', value: identity.id }
]

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: 30
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: name
  location: location
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
  }
}

resource operators 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(email)) {
  name: '${name}-operators'
  location: 'Global'
  properties: {
    enabled: true
    groupShortName: take(name, 12)
    emailReceivers: [{ name: 'operators', emailAddress: email, useCommonAlertSchema: true }]
  }
}

// Alerts on log lines, as text or JSON. Errors have severity 3. Metrics reach Application Insights only through an
// OpenTelemetry collector.
var alerts = [
  {
    name: 'failed'
    severity: 2
    description: 'An orchestration failed.'
    query: 'traces | where severityLevel == 3 and message has "FunctionFailed"'
  }
  {
    name: 'nondeterminism'
    severity: 1
    description: 'The code of an orchestrator does not fit the history of an instance.'
    query: 'traces | where message has_any ("NonDeterminismError", "Non-Deterministic workflow detected")'
  }
  {
    name: 'undecodable'
    severity: 1
    description: 'A message or the stored data of an instance cannot be decoded.'
    query: 'traces | where severityLevel == 3 and message has_any ("MessageFailure", "OrchestrationProcessingFailure")'
  }
  {
    name: 'notready'
    severity: 1
    description: 'The app cannot serve: a wrong setting, unreachable storage or a full disk.'
    query: 'traces | where message has "all calls get status 503"'
  }
  {
    name: 'storage'
    severity: 1
    description: 'Storage does not answer.'
    query: 'traces | where message has "GeneralWarning"'
  }
]

resource rules 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = [for alert in alerts: {
  name: '${name}-${alert.name}'
  location: location
  properties: {
    displayName: '${name}: ${alert.name}'
    description: alert.description
    severity: alert.severity
    enabled: true
    scopes: [insights.id]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT5M'
    criteria: {
      allOf: [
        {
          query: alert.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    autoMitigate: true
    actions: { actionGroups: empty(email) ? [] : [operators.id] }
  }
}]

resource app 'Microsoft.Web/sites@2023-12-01' = {
  name: name
  location: location
  kind: 'functionapp,linux'
  dependsOn: [assignments] // the app logs errors until it has them
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identity.id}': {} }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    siteConfig: {
      linuxFxVersion: '' // a custom handler needs no runtime
      minimumElasticInstanceCount: alwaysReady
      preWarmedInstanceCount: 1
      ftpsState: 'Disabled'
      minTlsVersion: '1.2'
      appSettings: concat([
        { name: 'FUNCTIONS_EXTENSION_VERSION', value: '~4' }
        { name: 'FUNCTIONS_WORKER_RUNTIME', value: 'custom' }
        { name: 'APPLICATIONINSIGHTS_CONNECTION_STRING', value: insights.properties.ConnectionString }
        { name: 'AzureFunctionsJobHost__extensions__durableTask__storageProvider__type', value: storageType }
        { name: 'AzureWebJobsStorage__accountName', value: storage.name }
        { name: 'AzureWebJobsStorage__credential', value: 'managedidentity' }
        { name: 'AzureWebJobsStorage__clientId', value: identity.properties.clientId }
      ], fromPackage)
    }
  }
}

output host string = app.properties.defaultHostName
output account string = storage.name
