# Terraform and OpenTofu: says `provisioned` after the cluster and its kubeconfig Secret were made, and again when the
# address of its API server changes.
variable "cluster" {
  description = "Name of the cluster, which its InferenceCluster has too."
  type        = string
}

variable "endpoint" {
  description = "Address of its API server, an output of whatever makes the cluster."
  type        = string
}

variable "secret" {
  description = "Its kubeconfig Secret in modelplane-system on the hub, NAME or NAME/KEY."
  type        = string
  default     = ""
}

resource "terraform_data" "provisioned" {
  triggers_replace = [var.cluster, var.endpoint]

  provisioner "local-exec" {
    # As arguments and not as text of the command, so that no name is taken for one.
    interpreter = ["sh"]
    command     = "${path.module}/provisioned.sh"
    environment = {
      CLUSTER = var.cluster
      SECRET  = var.secret
    }
  }
}
