-- Rule files of dplc: the language server, comments, widths.
vim.filetype.add({ extension = { rw = "dplc-rule" } })
vim.lsp.config("dplc", { cmd = { "dplc", "lsp" }, filetypes = { "dplc-rule" }, root_markers = { "pipeline.rw", ".git" } })
vim.lsp.enable("dplc")
vim.api.nvim_create_autocmd("FileType", {
  pattern = "dplc-rule",
  callback = function()
    vim.bo.commentstring = "# %s"
    vim.bo.shiftwidth, vim.bo.expandtab = 4, true
  end,
})
