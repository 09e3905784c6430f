// Starts `dplc lsp` for rule files.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const settings = workspace.getConfiguration("dplc");
  const server = { command: settings.get("path"), args: ["lsp"] };
  client = new LanguageClient("dplc", "dplc rules", server, {
    documentSelector: [{ language: "dplc-rule" }],
    initializationOptions: { suite: settings.get("suite") },
  }); // the commands of lenses are the server's: the client offers them by itself
  return client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
