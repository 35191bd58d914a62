SwaggerUIBundle({
  url: "/openapi.yaml",
  dom_id: "#contract",
  deepLinking: true,
  filter: true,
  showExtensions: true, // x-scopes
  showCommonExtensions: true, // limits of parameters
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
