const contract = document.querySelector("#contract");
SwaggerUIBundle({
  url: contract.dataset.url,
  domNode: contract,
  deepLinking: true,
  filter: true,
  showExtensions: true, // x-scopes
  showCommonExtensions: true, // limits of parameters
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
