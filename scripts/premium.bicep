// A function app on an Elastic Premium plan (Linux) that runs a package built by
// scripts/package, with its storage account and no secret anywhere: the app's
// own identity opens the storage. Used by scripts/deploy.
//
// Syntax is all that could be checked where this was written; it has not been
// deployed.

@description('Name of the function app; its host name is NAME.azurewebsites.net.')
param name string

@description('Region.')
param location string = resourceGroup().location

@description('Name of the storage account: 3 to 24 letters and digits.')
@minLength(3)
@maxLength(24)
param storageName string = take('st${uniqueString(resourceGroup().id, name)}', 24)

@description('Size of an instance. The engine needs little; choose by what activities need.')
@allowed(['EP1', 'EP2', 'EP3'])
param size string = 'EP1'

@description('Instances that always run. The engine polls its queues from within the app, so it needs at least one: the platform starts no instance because of what waits in them.')
@minValue(1)
@maxValue(20)
param alwaysReady int = 1

@description('Most instances that the platform scales out to.')
@minValue(1)
@maxValue(100)
param maxInstances int = 10

@description('Name of the package in the container "packages". Empty for the first deployment, before there is one.')
param package string = ''

// The engine reads and writes blobs (large payloads, leases), queues (messages) and
// tables (histories, instances): one data role each. The host keeps its own leases
// and keys in the same account, which the blob role covers as well.
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
    principalType: 'ServicePrincipal' // spares the wait until the directory knows the identity
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
  }
}]

// What lets the app run from the package in the container, without a file share,
// which would need the account's key.
var fromPackage = empty(package) ? [] : [
  { name: 'WEBSITE_RUN_FROM_PACKAGE', value: '${storage.properties.primaryEndpoints.blob}packages/${package}' }
  { name: 'WEBSITE_RUN_FROM_PACKAGE_BLOB_MI_RESOURCE_ID', value: identity.id }
]

resource app 'Microsoft.Web/sites@2023-12-01' = {
  name: name
  location: location
  kind: 'functionapp,linux'
  dependsOn: [assignments] // an app that starts without them logs errors until it has them
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identity.id}': {} }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    siteConfig: {
      linuxFxVersion: '' // a custom handler brings its own runtime
      minimumElasticInstanceCount: alwaysReady
      preWarmedInstanceCount: 1
      ftpsState: 'Disabled'
      minTlsVersion: '1.2'
      appSettings: concat([
        { name: 'FUNCTIONS_EXTENSION_VERSION', value: '~4' }
        { name: 'FUNCTIONS_WORKER_RUNTIME', value: 'custom' }
        // The connection AzureWebJobsStorage, which host.json names, by identity.
        { name: 'AzureWebJobsStorage__accountName', value: storage.name }
        { name: 'AzureWebJobsStorage__credential', value: 'managedidentity' }
        { name: 'AzureWebJobsStorage__clientId', value: identity.properties.clientId }
      ], fromPackage)
    }
  }
}

output host string = app.properties.defaultHostName
output account string = storage.name
